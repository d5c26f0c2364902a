"""What is tried next: anchors, the ladder of structures, suggestions and variations."""
