"""What the wheel is built from: the network with the weights that train.py saved, and an input as it takes them."""

from pathlib import Path

import safetensors.torch
import torch
from network import Network

net = Network()
net.load_state_dict(safetensors.torch.load(Path(__file__).with_name("weights.safetensors").read_bytes()))
sample = torch.zeros(1, 1, 8, 8)
