"""Passes that replace graphs by equal ones that are cheaper to compute, in any module."""
