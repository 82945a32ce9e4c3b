#include "program.hpp"

namespace residual {
namespace {

using namespace atlasc;

/// Rotations by amounts to the left: [amount, highest level of its key].
std::map<std::size_t, int> rotations() {
    return {
        {2, 14},
        {4, 14},
    };
}

}  // namespace

const Interface& interface() {
    static const Interface facts = {
        "residual",
        "51de57e1a7826d9161d3c74ecaa151a73ff4e4b6cd0e1e2883e7b34faa5bdc39",
        {8, 14, 14, 2},
        {rotations(), 13, 13},
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
        0,
        "42c069681def2bde57a8a76bd526b220c5efeb0303e5308136da295b81af5b13",
    };
    return facts;
}

}  // namespace residual
