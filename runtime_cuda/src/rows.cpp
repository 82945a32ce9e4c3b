// Values of one token, and attention with one query.
//
// The slots of the other tokens hold copies, and their top bits number the blocks that would number
// ciphertexts otherwise: their places. The scores of one query are one product a column of heads and
// a sum over the features. They then lie along the tokens; the keys move to the place of the
// features: where s is the place of a feature, token t = s is kept, summed over the tokens to the
// first one and copied to all. The context goes the same way back.
#include <algorithm>
#include <map>
#include <set>

#include "atlasc/error.hpp"
#include "atlasc/kernels.hpp"
#include "scores.hpp"

namespace atlasc {
namespace {

/// A ciphertext with one token, its number in a result, and by how many slots it moves there.
struct Row {
    Ciphertext part;
    std::size_t number;
    long place;
};

/// Rows in their places, and copied there.
Packed in_places(const Context& context, const Layout& layout, const std::vector<Row>& rows) {
    Packed result{layout, Ciphertexts(layout.ciphertexts())};
    for (const Row& row : rows) {
        const Ciphertext moved = context.rotate(row.part, -row.place);
        Ciphertext& total = result.parts.at(row.number);
        total = total == nullptr ? moved : context.engine.add(total, moved);
    }
    for (Ciphertext& total : result.parts) {
        for (int bit = 0; bit < layout.fields().back().bits; ++bit) {
            total = context.engine.add(total, context.rotate(total, -(1L << bit)));
        }
    }
    return result;
}

/// Where a layout has what another one has in the ciphertext at an index.
Place place_of(const Layout& layout, Index index, std::size_t diagonal = 0) {
    index.erase('s');
    const Place place = layout.place(index);
    return {place.ciphertext + layout.place('s', diagonal).ciphertext, place.slot};
}

Vector chosen(const Mask& mask) { return {mask.begin(), mask.end()}; }

/// Slots of one token.
Vector at_token(const Layout& layout, std::size_t token) {
    Vector slots(layout.slots());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        slots[slot] = layout.index_of_slot('t', slot) == token;
    }
    return slots;
}

/// Slots whose token is the key, in the ciphertext whose first key is `start`.
Mask at_key(const Scores& scores, const Layout& keys, std::size_t start) {
    Mask slots(keys.slots());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        slots[slot] = keys.index_of_slot('t', slot) == start + scores.diagonal(slot);
    }
    return slots;
}

/// By column of heads its ciphertext and places; the first column of a ciphertext also has those
/// that no column has, so that a polynomial stays in its range there.
std::vector<std::pair<std::size_t, std::vector<std::size_t>>> places_of(const Scores& scores,
                                                                        const Layout& keys,
                                                                        std::size_t start) {
    std::vector<std::pair<std::size_t, std::vector<std::size_t>>> columns;
    std::map<std::size_t, std::set<std::size_t>> taken;
    for (const Index& index : keys.ciphertext_index()) {
        const Place place = place_of(scores.layout, index, start);
        columns.push_back({place.ciphertext, {place.slot}});
        taken[place.ciphertext].insert(place.slot);
    }
    const std::size_t size = std::size_t{1} << keys.fields().back().bits;
    const std::size_t step = std::size_t{1} << scores.layout.fields().back().bits;
    std::set<std::size_t> seen;
    for (auto& [number, places] : columns) {
        if (seen.insert(number).second) {
            for (std::size_t place = 0; place < size; place += step) {
                if (taken[number].count(place) == 0) {
                    places.push_back(place);
                }
            }
        }
    }
    return columns;
}

int bits_of(const Layout& layout, char axis) { return layout.field(axis)->bits; }

}  // namespace

Packed replicate(Context& context, Packed x, const Layout& layout) {
    context.begin("replicate");
    std::vector<Row> rows;
    const std::vector<Index> indices = x.layout.ciphertext_index();
    for (std::size_t at = 0; at < indices.size(); ++at) {
        const Place place = place_of(layout, indices[at]);
        rows.push_back({x.parts.at(at), place.ciphertext, static_cast<long>(place.slot)});
    }
    return in_places(context, layout, rows);
}

Packed row_scores(Context& context, Packed q, Packed k, double fill, double log_keys,
                  const Layout& layout, const std::string& mask, Flags flags, std::size_t query) {
    context.begin("row_scores");
    const Scores scores(layout);
    const Layout& keys = k.layout;
    const Tensor* kept_keys = public_mask(context, mask, scores);
    const bool is_causal = (flags & causal) != 0;
    std::vector<Row> rows;
    for (std::size_t column = 0; column < k.parts.size(); ++column) {
        Ciphertext total = context.engine.mul(q.parts.at(column), k.parts[column]);
        total = context.double_and_add(total, keys.stride('d'), bits_of(keys, 'd'));
        for (const std::size_t start : scores.parts()) {
            const Mask kept = scores.kept(start, kept_keys, is_causal, 0, query);
            Mask slots = at_key(scores, keys, start);
            for (std::size_t slot = 0; slot < slots.size(); ++slot) {
                slots[slot] = slots[slot] && kept[slot];
            }
            Ciphertext one = context.engine.mul_plain(total, chosen(slots));
            one = context.double_and_add(one, 1, bits_of(layout, 's'));
            one = context.engine.mul_plain(one, at_token(keys, start));
            const auto [number, places] = places_of(scores, keys, start).at(column);
            for (const std::size_t place : places) {
                rows.push_back({one, number, static_cast<long>(place) - static_cast<long>(start)});
            }
        }
    }
    Packed result = in_places(context, layout, rows);
    fill_masked(context, scores, result.parts, fill, log_keys, kept_keys, is_causal, query);
    return result;
}

Packed row_context(Context& context, Packed p, Packed v) {
    context.begin("row_context");
    const Scores scores(p.layout);
    const Layout& values = v.layout;
    const Layout target = values.one_row();
    const auto copies = std::size_t{1} << p.layout.fields().back().bits;  // of a place
    struct Move {
        std::size_t number;
        long amount;
        std::size_t start;
        std::size_t there;
    };
    std::vector<std::vector<Move>> moves(v.parts.size());  // of each column
    std::map<std::size_t, std::set<long>> wanted;          // amounts by ciphertext
    for (std::size_t column = 0; column < moves.size(); ++column) {
        for (const std::size_t start : scores.parts()) {
            const auto [number, places] = places_of(scores, values, start).at(column);
            const std::size_t first = start / copies * copies;
            for (std::size_t there = first; there < start + scores.inner; there += copies) {
                const long amount = static_cast<long>(places[0]) - static_cast<long>(there);
                moves[column].push_back({number, amount, start, there});
                wanted[number].insert(amount);
            }
        }
    }
    std::map<std::pair<std::size_t, long>, Ciphertext> moved;
    for (const auto& [number, amounts] : wanted) {
        const std::vector<long> list(amounts.begin(), amounts.end());
        const Ciphertexts rotated = context.rotate_many(p.parts.at(number), list);
        for (std::size_t at = 0; at < list.size(); ++at) {
            moved[{number, list[at]}] = rotated[at];
        }
    }

    const Mask first_copy = scores.first_copy();
    const std::vector<Index> indices = values.ciphertext_index();
    std::vector<Row> rows;
    for (std::size_t column = 0; column < moves.size(); ++column) {
        Ciphertexts terms;
        for (const Move& move : moves[column]) {
            Mask slots = at_key(scores, values, move.start);
            for (std::size_t slot = 0; slot < slots.size(); ++slot) {
                const std::size_t token = values.index_of_slot('t', slot);
                slots[slot] = slots[slot] && first_copy[slot] && token < scores.real &&
                              token / copies == move.there / copies;
            }
            terms.push_back(
                context.engine.mul_plain(moved.at({move.number, move.amount}), chosen(slots)));
        }
        const Ciphertext weights = context.double_and_add(
            context.total(terms), values.stride('d'), bits_of(values, 'd'));
        Ciphertext one = context.engine.mul(weights, v.parts[column]);
        one = context.double_and_add(one, 1, bits_of(values, 't'));
        one = context.engine.mul_plain(one, at_token(values, 0));
        const Place place = place_of(target, indices[column]);
        rows.push_back({one, place.ciphertext, static_cast<long>(place.slot)});
    }
    return in_places(context, target, rows);
}

}  // namespace atlasc
