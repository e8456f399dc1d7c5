"""Torch's autograd without numbers: tensors that only have a size, what operators keep of them, and when they die.

The models of `zeroplan.architectures` run on it as they run in torch, so that what is alive at any moment can be
read off. A storage dies when Python drops the last reference to it, as a torch storage does.
"""
