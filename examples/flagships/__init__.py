"""Six packages of the package index that run ONNX files with onnxruntime, each shipped without a runtime."""
