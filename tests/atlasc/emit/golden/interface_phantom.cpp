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
        {
            {"record/code", "U8", {1536},
             "4c4a701891f813c886aaca23050c0331c5ed1d8dcf5057cf177ca27e37b02f4d"},
            {"record/tables", "U8", {32},
             "d287819df0ebc816b21d001e2af029ed74a8da7be0ef55f3267438e8bbab26f3"},
            {"record/floats", "U8", {48},
             "a digest"},
            {"record/names", "U8", {93},
             "71da9fbb54fad5db1a29ca579ea45ac966b7902fd33e1f3e80095c64921ad71e"},
            {"constant", "F64", {4},
             "ec0f8e284b20b054c853225824d7d339a036429f37b648ea7e3ccc5b8ff07143"},
            {"layer.0.weight", "F64", {4, 4},
             "4daaddbf4c4e822c80629d1ec460f55042e7c0fc23d632179b013d3a24098dc3"},
            {"layer.1.weight", "F64", {4, 4},
             "31765c2d4bb0244aac82e857b1890504209a48447511da1c6ff202da6c5c896f"},
        },
        9,
        476672,
    };
    return facts;
}

}  // namespace residual
