"""Maths on tensors: no autograd, no models."""
