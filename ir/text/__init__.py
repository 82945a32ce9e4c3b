"""The text form of modules: parser, printer, storage, and the reference."""
