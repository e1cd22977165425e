"""What the kernel provisioner is made of; the class itself is in ``provisioner``."""
