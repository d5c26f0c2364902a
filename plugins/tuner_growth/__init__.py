"""Width growth under release-and-inhibit control: a tail that starts narrow and grows where growth pays."""
