"""A network of Keras, exported and loaded; a trained one comes from ``keras.saving.load_model``."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
from keras import layers

import mlaot.onnx

keras.utils.set_random_seed(0)
net = keras.Sequential(
    [
        keras.Input((8, 8, 1), name="image"),
        layers.Conv2D(8, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
net(np.zeros((1, 8, 8, 1), np.float32))
with tempfile.TemporaryDirectory() as folder:
    net.export(f"{folder}/net.onnx", format="onnx", verbose=False)
    model = mlaot.onnx.load(f"{folder}/net.onnx")
