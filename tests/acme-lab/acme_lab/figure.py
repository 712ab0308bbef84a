"""A figure."""


def plot_depths(run):
    """Plot the number of thoughts by depth."""
    import plotly.graph_objects as go

    return go.Figure(go.Histogram(x=[node.depth for node in run.tree]))
