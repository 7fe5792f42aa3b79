"""Trained agents taken along: an ONNX file, and a folder that is ready for a hub."""
