"""Programs to Python modules and C libraries: the table of a module, its stub and its headers."""
