"""All programs, family by family."""

from __future__ import annotations

from families import (
    algorithms,
    arguments,
    arithmetic,
    autograd,
    changing_models,
    classes,
    closures,
    containers,
    contexts,
    control_flow,
    data_dependent,
    decoding,
    exceptions,
    functional_style,
    generation,
    gradient_paths,
    higher_derivatives,
    indexing,
    layers,
    modelling,
    models,
    mutation,
    output,
    protocols,
    python_values,
    randomness,
    schedules,
    simulations,
    surroundings,
    training,
    training_loops,
    transforms,
)

FAMILIES = (
    arithmetic, control_flow, python_values, data_dependent, arguments, containers, mutation, closures,
    classes, protocols, functional_style, generation, exceptions, contexts, output, randomness, indexing,
    surroundings, autograd, gradient_paths, higher_derivatives, transforms, layers, models,
    changing_models, modelling, decoding, training, training_loops, schedules, algorithms, simulations,
)  # fmt: skip
PROGRAMS = [program for family in FAMILIES for program in family.program.members.values()]
