#include <functional>
#include <map>

#include "atlasc/error.hpp"
#include "atlasc/kernels.hpp"
#include "atlasc/paterson_stockmeyer.hpp"

namespace atlasc {
namespace {

using Binary = Ciphertext (Engine::*)(const Ciphertext&, const Ciphertext&);

/// Whether `reduced` is replicated where `full` has an axis, and is like it elsewhere.
bool covers(const Layout& full, const Layout& reduced) {
    if (full.fields().size() != reduced.fields().size() ||
        full.ciphertexts() < reduced.ciphertexts()) {
        return false;
    }
    for (std::size_t at = 0; at < full.fields().size(); ++at) {
        const Field& one = full.fields()[at];
        const Field& other = reduced.fields()[at];
        if (!(one == other) && !(other.axis == replicated && one.bits == other.bits)) {
            return false;
        }
    }
    return true;
}

Packed combined(Context& context, Binary op, const Packed& a, const Packed& b) {
    if (!covers(a.layout, b.layout) && !covers(b.layout, a.layout)) {
        throw Error("the layouts of two operands do not align");
    }
    const Layout& full = covers(a.layout, b.layout) ? a.layout : b.layout;
    const std::vector<std::size_t> lefts = full.ciphertexts_of(a.layout);
    const std::vector<std::size_t> rights = full.ciphertexts_of(b.layout);
    Packed result{full, {}};
    for (std::size_t at = 0; at < lefts.size(); ++at) {
        result.parts.push_back(
            (context.engine.*op)(a.parts.at(lefts[at]), b.parts.at(rights[at])));
    }
    return result;
}

/// A constant in a layout, one plaintext a ciphertext.
std::vector<Plaintext> plaintexts(const Context& context, const Constant& value,
                                  const Layout& layout, Flags flags) {
    if (value.is_number() && !(flags & (zero_padding | first_row))) {
        return std::vector<Plaintext>(layout.ciphertexts(), value.number());
    }
    std::string repeat = (flags & zero_padding) ? "" : row_axes;
    if (flags & copy_padding) {
        repeat = std::string(row_axes) + "g";
    }
    Tensor tensor = value.array(context);
    if (tensor.shape.back() == 1) {  // the same for all features, padding included
        tensor.shape.push_back(1);
    } else {
        tensor = blocked(tensor, layout);
    }
    std::vector<Plaintext> result;
    const Vector rows = (flags & first_row) ? first_rows(layout) : Vector();
    for (Vector& vector : layout.pack(tensor, repeat)) {
        for (std::size_t slot = 0; slot < rows.size(); ++slot) {
            vector[slot] *= rows[slot];
        }
        result.emplace_back(std::move(vector));
    }
    return result;
}

Packed dropped(const Context& context, Packed x, int level) {
    for (Ciphertext& part : x.parts) {
        part = context.engine.drop_to(part, level);
    }
    return x;
}

}  // namespace

Packed add(Context& context, Packed a, Packed b) {
    context.begin("add");
    return combined(context, &Engine::add, a, b);
}

Packed sub(Context& context, Packed a, Packed b) {
    context.begin("sub");
    return combined(context, &Engine::sub, a, b);
}

Packed mul(Context& context, Packed a, Packed b) {
    context.begin("mul");
    return combined(context, &Engine::mul, a, b);
}

Packed square(Context& context, Packed x) {
    context.begin("square");
    for (Ciphertext& part : x.parts) {
        part = context.engine.square(part);
    }
    return x;
}

Packed doubled(Context& context, Packed x, int times) {
    context.begin("double");
    for (Ciphertext& part : x.parts) {
        for (int time = 0; time < times; ++time) {
            part = context.engine.add(part, part);
        }
    }
    return x;
}

Packed add_plain(Context& context, Packed x, const Constant& value, Flags flags) {
    context.begin("add_plain");
    const std::vector<Plaintext> vectors = plaintexts(context, value, x.layout, flags);
    for (std::size_t at = 0; at < vectors.size(); ++at) {
        x.parts.at(at) = context.engine.add_plain(x.parts.at(at), vectors[at]);
    }
    return x;
}

Packed mul_plain(Context& context, Packed x, const Constant& value, Flags flags) {
    const Layout layout = x.layout;
    return mul_plain(context, std::move(x), value, layout, flags);
}

Packed mul_plain(Context& context, Packed x, const Constant& value, const Layout& layout,
                 Flags flags) {
    context.begin("mul_plain");
    const std::vector<std::size_t> sources = layout.ciphertexts_of(x.layout);
    const std::vector<Plaintext> vectors = plaintexts(context, value, layout, flags);
    Packed result{layout, {}};
    for (std::size_t at = 0; at < sources.size(); ++at) {
        result.parts.push_back(context.engine.mul_plain(x.parts.at(sources[at]), vectors[at]));
    }
    return result;
}

Packed chebyshev(Context& context, Packed x, const Constant& coefficients) {
    context.begin("chebyshev");
    const Tensor tensor = coefficients.array(context);
    const std::size_t terms = tensor.shape.back();
    const std::size_t channels = tensor.values.size() / terms;
    std::vector<Coefficient> columns(terms, Coefficient(channels));
    for (std::size_t at = 0; at < tensor.values.size(); ++at) {
        columns[at % terms][at / terms] = tensor.values[at];
    }
    const ChebyshevPlan plan = plan_chebyshev(columns);
    const bool by_feature = tensor.shape.size() > 1;
    for (std::size_t position = 0; position < x.parts.size(); ++position) {
        const auto plaintext = [&](const Coefficient& coefficient) -> Plaintext {
            if (!by_feature) {
                return coefficient[0];
            }
            const Tensor channel{{coefficient.size()}, coefficient};
            return x.layout.pack(blocked(channel, x.layout), row_axes).at(position);
        };
        x.parts[position] = evaluate(plan, context.engine, x.parts[position], plaintext);
    }
    return x;
}

Packed rotate_sum(Context& context, Packed x, const std::string& axes) {
    context.begin("rotate_sum");
    // A sum that ends in the top bits wraps around the ciphertext and so reaches every slot.
    const std::vector<Field>& fields = x.layout.fields();
    const auto summed = [&](const Field& field) {
        return axes.find(field.axis) != std::string::npos;
    };
    std::size_t leading = 0;
    while (leading < fields.size() && (fields[leading].bits == 0 || summed(fields[leading]) ||
                                       fields[leading].axis == replicated)) {
        ++leading;
    }
    char stand_in = replicated;
    for (std::size_t at = leading; at < fields.size(); ++at) {
        stand_in = summed(fields[at]) ? unused : stand_in;
    }
    Packed result{x.layout.without(axes, stand_in), {}};
    const std::vector<std::size_t> groups = x.layout.ciphertexts_of(result.layout);
    result.parts.resize(result.layout.ciphertexts());
    for (std::size_t at = 0; at < groups.size(); ++at) {
        Ciphertext& total = result.parts.at(groups[at]);
        total = total == nullptr ? x.parts.at(at) : context.engine.add(total, x.parts.at(at));
    }
    for (Ciphertext& total : result.parts) {
        for (std::size_t at = 0; at < fields.size(); ++at) {
            if (summed(fields[at])) {
                const std::size_t stride = std::size_t{1} << x.layout.offset(at);
                total = context.double_and_add(total, stride, fields[at].bits);
            }
        }
    }
    return result;
}

Packed select(Context& context, Packed x, char axis, std::size_t index) {
    context.begin("select");
    const auto amount = static_cast<long>(index * x.layout.stride(axis));
    for (Ciphertext& part : x.parts) {
        part = context.rotate(part, amount);
    }
    x.layout = x.layout.without(std::string(1, axis), unused);
    return x;
}

Packed drop(Context& context, Packed x, int level) {
    context.begin("drop");
    return dropped(context, std::move(x), level);
}

Packed bootstrap(Context& context, Packed x, int level) {
    context.begin("bootstrap");
    x.parts = context.engine.bootstrap_many(x.parts);
    return dropped(context, std::move(x), level);
}

}  // namespace atlasc
