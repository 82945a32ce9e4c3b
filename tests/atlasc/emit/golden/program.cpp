#include "program.hpp"

#include <tuple>
#include <utility>

#include "atlasc/kernels.hpp"

namespace residual {
namespace {

using namespace atlasc;

const Layout layout_0("[d:1 g:1 b:0 t:1 |  | b=1 t=2 g=2 d=2]");

// encoder.layer.0
Packed encoder_layer_0(Context& context, Packed v0) {
    context.at("encoder.layer.0.dense");
    Packed v1 = linear_transform(context, v0, {"layer.0.weight"}, 2, layout_0, paired);
    context.at("encoder.layer.0.activation");
    Packed v2 = square(context, std::move(v1));
    Packed v3 = drop(context, std::move(v0), 12);
    context.at("encoder.layer.0");
    Packed v4 = add(context, std::move(v3), std::move(v2));
    return v4;
}

// encoder.layer.1
Packed encoder_layer_1(Context& context, Packed v4) {
    context.at("encoder.layer.1.dense");
    Packed v5 = linear_transform(context, v4, {"layer.1.weight"}, 2, layout_0, paired);
    context.at("encoder.layer.1.activation");
    Packed v6 = square(context, std::move(v5));
    Packed v7 = drop(context, std::move(v4), 10);
    context.at("encoder.layer.1");
    Packed v8 = add(context, std::move(v7), std::move(v6));
    return v8;
}

// classifier
Packed classifier(Context& context, Packed v8) {
    context.at("classifier");
    Packed v9 = chebyshev(context, std::move(v8), std::vector<double>{0.5, 0.25, 0.125});
    return v9;
}

}  // namespace

Values execute(Context& context, Values inputs) {
    Packed v0 = std::move(inputs.at("x"));
    Packed v4 = encoder_layer_0(context, std::move(v0));
    Packed v8 = encoder_layer_1(context, std::move(v4));
    Packed v9 = classifier(context, std::move(v8));
    Values results;
    results.emplace("y", v9);
    return results;
}

}  // namespace residual
