"""Looking at processes, and ending recorded ones with proof of identity."""
