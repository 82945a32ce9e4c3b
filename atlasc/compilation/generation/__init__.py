"""From a decoder's window to the programs that generate text."""
