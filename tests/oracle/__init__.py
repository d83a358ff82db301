"""An independent reader and writer of yamal files, used to check the product and sharing no code with it."""
