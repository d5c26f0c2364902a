"""Write a personalised model as a bundle, and check it."""
