#include "program.hpp"

#include <tuple>
#include <utility>

namespace residual {
namespace {

using namespace atlasc;

// encoder.layer.0
Ciphertexts encoder_layer_0(Context& context, Ciphertexts v0) {
    context.at("encoder.layer.0.dense");
    Ciphertexts v1 = context.call("linear_transform_1", {"layer.0.weight"}, v0);
    context.at("encoder.layer.0.activation");
    Ciphertexts v2 = context.call("square_1", {}, std::move(v1));
    Ciphertexts v3 = context.call("drop_1", {}, std::move(v0));
    context.at("encoder.layer.0");
    Ciphertexts v4 = context.call("add_1", {}, std::move(v3), std::move(v2));
    return v4;
}

// encoder.layer.1
Ciphertexts encoder_layer_1(Context& context, Ciphertexts v4) {
    context.at("encoder.layer.1.dense");
    Ciphertexts v5 = context.call("linear_transform_2", {"layer.1.weight"}, v4);
    context.at("encoder.layer.1.activation");
    Ciphertexts v6 = context.call("square_2", {}, std::move(v5));
    Ciphertexts v7 = context.call("drop_2", {}, std::move(v4));
    context.at("encoder.layer.1");
    Ciphertexts v8 = context.call("add_2", {}, std::move(v7), std::move(v6));
    return v8;
}

// classifier
Ciphertexts classifier(Context& context, Ciphertexts v8) {
    context.at("classifier");
    Ciphertexts v9 = context.call("chebyshev_1", {}, std::move(v8));
    return v9;
}

}  // namespace

Values execute(Context& context, Values inputs) {
    Ciphertexts v0 = std::move(inputs.at("x"));
    Ciphertexts v4 = encoder_layer_0(context, std::move(v0));
    Ciphertexts v8 = encoder_layer_1(context, std::move(v4));
    Ciphertexts v9 = classifier(context, std::move(v8));
    Values results;
    results.emplace("y", v9);
    return results;
}

}  // namespace residual
