#include "program.hpp"

namespace residual {
namespace {

using namespace atlasc;

/// Rotations by amounts to the left: [amount, highest level of its key].
RotationPlan rotations() {
    RotationPlan plan;
    plan.keys = {
        {2, 14},
        {4, 14},
    };
    plan.bootstrap = {};
    plan.composed = {
    };
    return plan;
}

/// Primes in bits, from level 0 up, and the runtime's parameters of the bootstrap.
Moduli moduli() {
    Moduli result;
    result.primes = {
        57, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 42, 42, 42, 60, 60, 60, 60, 60,
        60, 60, 57, 57, 57,
    };
    result.special = {60, 60, 60, 60, 60};
    result.scale = 46;
    result.bootstrap = "fourteen_levels";
    return result;
}

/// What the bootstrap turns by: [amount, highest level].
std::map<std::size_t, int> bootstrap_rotations() {
    return {
        {1, 25},
        {2, 26},
        {4, 27},
        {6, 25},
    };
}

}  // namespace

const Interface& interface() {
    static const Interface facts = {
        "residual",
        "51de57e1a7826d9161d3c74ecaa151a73ff4e4b6cd0e1e2883e7b34faa5bdc39",
        {8, 14, 14, 2, moduli()},
        {rotations(), 24, 24, bootstrap_rotations()},
        {
            {
                "x",
                {1, 2, 4},
                Layout("[d:1 g:1 b:0 t:1 |  | b=1 t=2 g=2 d=2]"),
                14,
                0.5,
                true,
                std::nullopt,
            },
        },
        {
        },
        {
            {
                "y",
                {1, 2, 4},
                Layout("[d:1 g:1 b:0 t:1 |  | b=1 t=2 g=2 d=2]"),
                {3.0},
                {-1.0, -0.33333333333333337, 0.33333333333333326, 1.0},
                8,
                std::nullopt,
            },
        },
        {
            {"constant", "F64", {4},
             "ec0f8e284b20b054c853225824d7d339a036429f37b648ea7e3ccc5b8ff07143"},
            {"layer.0.weight", "F64", {4, 4},
             "4daaddbf4c4e822c80629d1ec460f55042e7c0fc23d632179b013d3a24098dc3"},
            {"layer.1.weight", "F64", {4, 4},
             "31765c2d4bb0244aac82e857b1890504209a48447511da1c6ff202da6c5c896f"},
        },
        9,
    };
    return facts;
}

}  // namespace residual
