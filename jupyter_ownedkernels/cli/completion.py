"""``completion``: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse

from .output import PROGRAM

Commands = dict[str, list[str]]
_SCRIPT = "jupyter-ownedkernels"


def commands_of(parser: argparse.ArgumentParser) -> tuple[Commands, dict[str, str], list[str]]:
    """Options by subcommand, one line of help by subcommand, and the options before any."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            options = {name: _options(sub) for name, sub in action.choices.items()}
            return options, helps, _options(parser)
    return {}, {}, _options(parser)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    found = [text for action in parser._actions for text in action.option_strings]
    choices = [
        str(choice)
        for action in parser._actions
        if not action.option_strings
        and action.choices
        and not isinstance(action, argparse._SubParsersAction)
        for choice in action.choices
    ]
    return [text for text in found if text.startswith("--")] + choices


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for ``bash``, ``zsh`` or ``fish``; how to use it stands on top."""
    commands, helps, general = commands_of(parser)
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands, helps, general)


def _bash(commands: Commands, helps: dict[str, str], general: list[str]) -> str:
    cases = "\n".join(
        f"        {name}) words='{' '.join(options)}' ;;" for name, options in commands.items()
    )
    return f"""\
# bash completion for {PROGRAM}
# Use:  source <({PROGRAM} completion bash)
_jupyter_ownedkernels() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} command= place=1 words
    [[ ${{COMP_WORDS[0]##*/}} == jupyter ]] && place=2
    (( COMP_CWORD > place )) && command=${{COMP_WORDS[place]}}
    case $command in
        '') words='{" ".join([*commands, *general])}' ;;
{cases}
        *) words= ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
_jupyter_then_ownedkernels() {{
    if [[ ${{COMP_WORDS[1]}} == ownedkernels ]]; then
        _jupyter_ownedkernels
    elif (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W ownedkernels -- "${{COMP_WORDS[1]}}"))
    fi
}}
complete -F _jupyter_ownedkernels {_SCRIPT}
complete -p jupyter >/dev/null 2>&1 || complete -o default -F _jupyter_then_ownedkernels jupyter
"""


def _quoted(text: str) -> str:
    return text.replace("'", "")


def _zsh(commands: Commands, helps: dict[str, str], general: list[str]) -> str:
    names = "\n".join(f"        '{name}:{_quoted(helps.get(name, ''))}'" for name in commands)
    cases = "\n".join(
        f"        {name}) compadd -- {' '.join(options)} ;;" for name, options in commands.items()
    )
    return f"""\
#compdef {_SCRIPT}
# zsh completion for {PROGRAM}
# Use:  source <({PROGRAM} completion zsh)
_jupyter_ownedkernels() {{
    local -a names
    names=(
{names}
    )
    if (( CURRENT == 2 )); then
        _describe command names
        compadd -- {" ".join(general)}
        return
    fi
    case $words[2] in
{cases}
    esac
}}
(( $+functions[compdef] )) && compdef _jupyter_ownedkernels {_SCRIPT}
"""


def _fish(commands: Commands, helps: dict[str, str], general: list[str]) -> str:
    seen = f"__fish_seen_subcommand_from {' '.join(commands)}"
    lines = [
        f"# fish completion for {PROGRAM}",
        f"# Use:  {PROGRAM} completion fish | source",
        f"complete -c {_SCRIPT} -f",
    ]
    lines += [
        f"complete -c {_SCRIPT} -n 'not {seen}' -l {option.lstrip('-')}" for option in general
    ]
    for name, options in commands.items():
        help_text = _quoted(helps.get(name, ""))
        lines.append(f"complete -c {_SCRIPT} -n 'not {seen}' -a {name} -d '{help_text}'")
        for option in options:
            there = f"__fish_seen_subcommand_from {name}"
            what = f"-l {option.lstrip('-')}" if option.startswith("--") else f"-a {option}"
            lines.append(f"complete -c {_SCRIPT} -n '{there}' {what}")
    return "\n".join(lines) + "\n"
