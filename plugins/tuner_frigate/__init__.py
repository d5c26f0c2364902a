"""Classification models of Frigate, the recorder of cameras: trained on its photos, written as it loads them."""
