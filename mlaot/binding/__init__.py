"""The interface of compiled programs: tables, stubs and headers of Python modules and C libraries."""
