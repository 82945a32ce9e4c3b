#include "program.hpp"

namespace residual {
namespace {

using namespace atlasc;

/// Rotations by amounts to the left: [amount, highest level of its key].
std::map<std::size_t, int> rotations() {
    return {
        {1, 26},
        {2, 27},
        {4, 28},
        {6, 27},
        {7, 26},
    };
}

/// Primes and scales in bits, from level 0 up.
Moduli moduli() {
    Moduli result;
    result.primes = {
        57, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 46, 50, 50, 54, 56, 58,
        58, 58, 56, 54, 54, 53,
    };
    result.special = {60, 60, 60, 60, 60};
    result.scale = 46;
    result.log_scales = {
        46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0, 46.0,
        46.0, 46.0, 46.0, 48.0, 49.0, 51.5, 53.75, 55.875, 56.9375, 57.46875, 56.734375,
        56.822916666666664, 56.911458333333336, 57.0
    };
    return result;
}

}  // namespace

const Interface& interface() {
    static const Interface facts = {
        "residual",
        "51de57e1a7826d9161d3c74ecaa151a73ff4e4b6cd0e1e2883e7b34faa5bdc39",
        {8, 17, 17, 2, moduli()},
        {rotations(), 25, 25},
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
                std::nullopt,
            },
        },
        {},  // the arrays are those that the text of the program's file lists
        9,
        476672,
        "a digest",
    };
    return facts;
}

}  // namespace residual
