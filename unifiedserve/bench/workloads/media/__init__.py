"""Images and videos rendered for benchmarks: described by recipes, made once by FFmpeg, kept in a folder."""
