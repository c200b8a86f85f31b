"""What is done to weights that nothing changes after the build."""
