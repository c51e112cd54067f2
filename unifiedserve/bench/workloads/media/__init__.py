"""Render images and videos for benchmarks: described by recipes, made once by FFmpeg, kept in a folder."""
