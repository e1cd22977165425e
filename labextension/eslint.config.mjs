import js from '@eslint/js';
import { defineConfig, globalIgnores } from 'eslint/config';
import globals from 'globals';
import tseslint from 'typescript-eslint';

export default defineConfig([
  globalIgnores(['coverage', 'lib', 'node_modules']),
  js.configs.recommended,
  {
    files: ['*.js', '*.mjs'],
    languageOptions: { globals: globals.node }
  },
  {
    files: ['src/**/*.ts', 'src/**/*.tsx'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      globals: globals.browser,
      parserOptions: {
        project: './tsconfig.test.json',
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/naming-convention': [
        'error',
        {
          selector: 'interface',
          format: ['PascalCase'],
          custom: { regex: '^I[A-Z]', match: true }
        }
      ],
      // Namespaces of options and command ids are the custom of JupyterLab.
      '@typescript-eslint/no-namespace': 'off',
      // A signal of Lumino takes a method and its `this` apart.
      '@typescript-eslint/unbound-method': 'off',
      curly: ['error', 'all'],
      eqeqeq: 'error',
      'prefer-arrow-callback': 'error'
    }
  },
  {
    files: ['src/**/__tests__/**'],
    rules: {
      // Fakes stand in for parts of the app.
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-return': 'off'
    }
  },
  {
    files: ['*.js'],
    languageOptions: { sourceType: 'commonjs' }
  }
]);
