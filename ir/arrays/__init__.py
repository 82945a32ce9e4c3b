"""Large arrays of constants: made when they are read, and files of them that stay mapped."""
