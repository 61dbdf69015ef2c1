"""Random views of images, and the masks of masked autoencoders."""
