"""What the wheel is built from: the network with the weights that train.py saved, and an input as it takes them."""

import torch
from network import Network
from safetensors.torch import load_file

net = Network()
net.load_state_dict(load_file("weights.safetensors"))
sample = torch.zeros(1, 1, 8, 8)
