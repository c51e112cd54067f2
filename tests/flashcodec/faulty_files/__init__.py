"""Small videos whose containers do not say what is in them, and a check that FlashCodec decodes them as FFmpeg does."""
