"""Models and plans that contracts are checked on."""
