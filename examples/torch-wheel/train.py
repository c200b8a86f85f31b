"""Trains the network by PyTorch on the digits of scikit-learn, but for the last 360, and saves its weights."""

import torch
from network import Network
from safetensors.torch import save_file
from sklearn.datasets import load_digits

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None]
labels = torch.tensor(digits.target)
net = Network()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(30):
    for batch in torch.randperm(len(images) - 360).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(net(images[batch])["probabilities"].log(), labels[batch])
        loss.backward()
        optimizer.step()
net.eval()
right = (net(images[-360:])["digit"] == labels[-360:]).float().mean()
print(f"{100 * right:.1f} % of 360 others are right")
save_file(net.state_dict(), "weights.safetensors")
