#include "program.hpp"

#include "atlasc/kernels.hpp"

namespace small {
namespace {

using namespace atlasc;

const char* const layout_text = "[d:2 b:1 t:1 |  | b=2 t=2 g=1 d=4]";

Tensor weight() {
    Tensor tensor{{4, 4}, {}};
    for (int at = 0; at < 16; ++at) {
        tensor.values.push_back((at % 5 - 2) / 8.0);
    }
    return tensor;
}

Tensor bias() { return {{4}, {0.5, -0.5, 0.25, 0.0}}; }

Array described(const std::string& name, const Tensor& tensor) {
    const Digest digest = sha256(tensor.values.data(), tensor.values.size() * sizeof(double));
    return {name, "F64", tensor.shape, text_of(digest)};
}

}  // namespace

const Interface& interface() {
    static const Interface facts = [] {
        const Layout layout(layout_text);
        Interface made{"small", std::string(64, 'a'), {16, 3, std::nullopt, 1}, {}, {}, {}, {}};
        made.keys.relinearisation_level = -1;
        made.keys.conjugation_level = -1;
        for (std::size_t amount = 1; amount < 16; ++amount) {
            made.keys.rotations.keys[amount] = 3;
        }
        made.inputs.push_back({"x", {2, 2, 4}, layout, 3, 1.0, false, 1.0});
        made.publics.push_back({"mask", {2, 2}});
        made.outputs.push_back({"y", {2, 2, 4}, layout, {1.0}, {0.0}, 2, 2.0});
        made.weights = {described("bias", bias()), described("weight", weight())};
        made.ops = 1;
        return made;
    }();
    return facts;
}

Values execute(Context& context, Values inputs) {
    context.at("small");
    const Layout layout(layout_text);
    Packed y = linear_transform(context, inputs.at("x"), {"weight", "bias"}, 2, layout);
    Values results;
    results.emplace("y", y);
    return results;
}

void write_weights(const std::string& path) {
    TensorWriter writer({{"program", interface().identity}});
    writer.add("weight", weight());
    writer.add("bias", bias());
    writer.write(path);
}

std::map<std::string, Tensor> inputs(std::size_t count) {
    Tensor x{{count, 2, 4}, {}};
    for (std::size_t at = 0; at < count * 8; ++at) {
        x.values.push_back(static_cast<double>(at) / 16.0 - 0.5);
    }
    Tensor mask{{count, 2}, Vector(count * 2, 1.0)};
    mask.values.back() = 0.0;
    return {{"x", x}, {"mask", mask}};
}

}  // namespace small
