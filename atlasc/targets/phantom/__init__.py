"""The C++ runtime on Phantom-FHE."""
