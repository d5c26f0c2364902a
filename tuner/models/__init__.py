"""Small networks of the source systems; torch is imported with the module of each."""
