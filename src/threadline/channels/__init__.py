"""The messaging platforms, each as a pure codec: what they sign, deliver, show and answer. No socket, no clock."""
