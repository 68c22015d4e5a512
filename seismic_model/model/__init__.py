"""The autoencoder itself: tokens, masks, rotary positions, encoder and decoder. No distributed code."""
