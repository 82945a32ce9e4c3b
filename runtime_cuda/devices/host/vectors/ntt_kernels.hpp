// Transforms of several numbers at once. Included once for each arithmetic, inside its namespace:
// ifma.cpp, avx2.cpp.
namespace {

/// Cooley and Tukey's.
template <typename M>
inline void forward_butterfly(Vector& top, Vector& bottom, const Root& root, const M& m) {
    const Vector u = in_stage(top, m);
    const Vector v = lazy(bottom, root, m);
    top = u + v;
    bottom = lazy_difference(u, v, m);
}

/// Gentleman and Sande's.
template <typename M>
inline void backward_butterfly(Vector& top, Vector& bottom, const Root& root, const M& m) {
    const Vector sum = top + bottom;
    const Vector difference = lazy_difference(top, bottom, m);
    top = in_stage(sum, m);
    bottom = lazy(difference, root, m);
}

/// So many numbers stay in the nearest cache from one stage to the next.
constexpr std::size_t near = 2048;

/// How a pass finds its numbers: as residues, or as another pass left them.
enum class Form { residues, lazy };

template <Form form>
inline Vector load_as(const Word* from) {
    return form == Form::residues ? load(from) : load_lazy(from);
}

/// The first stage of a forward transform alone.
template <typename M>
inline void forward_one(Word* a, const Roots& roots, std::size_t half, const M& m) {
    const Root root = same(roots, 1);
    for (std::size_t at = 0; at < half; at += width) {
        Vector top = load(a + at);
        Vector bottom = load(a + at + half);
        forward_butterfly(top, bottom, root, m);
        store_lazy(a + at, top);
        store_lazy(a + at + half, bottom);
    }
}

/// Two stages at once, of halves and then of quarters, for blocks from `begin` on.
template <Form form, typename M>
inline void forward_two(Word* a, const Roots& roots, std::size_t blocks, std::size_t half,
                        std::size_t begin, std::size_t end, const M& m) {
    const std::size_t quarter = half / 2;
    for (std::size_t block = begin; block < end; ++block) {
        const Root first = same(roots, blocks + block);
        const Root left = same(roots, 2 * (blocks + block));
        const Root right = same(roots, 2 * (blocks + block) + 1);
        Word* start = a + 2 * block * half;
        for (std::size_t at = 0; at < quarter; at += width) {
            Word* place = start + at;
            Vector x0 = in_pass(load_as<form>(place), m);
            Vector x1 = in_pass(load_as<form>(place + quarter), m);
            Vector x2 = load_as<form>(place + 2 * quarter);
            Vector x3 = load_as<form>(place + 3 * quarter);
            forward_butterfly(x0, x2, first, m);
            forward_butterfly(x1, x3, first, m);
            forward_butterfly(x0, x1, left, m);
            forward_butterfly(x2, x3, right, m);
            store_lazy(place, x0);
            store_lazy(place + quarter, x1);
            store_lazy(place + 2 * quarter, x2);
            store_lazy(place + 3 * quarter, x3);
        }
    }
}

/// Two vectors of a transform.
struct Pair {
    Vector x;
    Vector y;

    Pair() {}
};

/// The stages of halves that are less than a vector, on some blocks of two vectors from `block` on: one
/// waits for its products while others are computed.
template <int half, std::size_t count, typename M>
inline void forward_inside(Pair (&pairs)[count], const Roots& roots, std::size_t degree,
                           std::size_t block, const M& m) {
    const std::size_t root = degree / (2 * half) + width / half * block;
    for (std::size_t at = 0; at < count; ++at) {
        trade<half>(pairs[at].x, pairs[at].y);
    }
    for (std::size_t at = 0; at < count; ++at) {
        forward_butterfly(pairs[at].x, pairs[at].y,
                          spread<half>(roots, root + width / half * at), m);
    }
    if constexpr (half > 1) {
        forward_inside<half / 2>(pairs, roots, degree, block, m);
    }
}

template <int half, std::size_t count, typename M>
inline void backward_inside(Pair (&pairs)[count], const Roots& roots, std::size_t degree,
                            std::size_t block, const M& m) {
    const std::size_t root = degree / (2 * half) + width / half * block;
    for (std::size_t at = 0; at < count; ++at) {
        backward_butterfly(pairs[at].x, pairs[at].y,
                           spread<half>(roots, root + width / half * at), m);
    }
    for (std::size_t at = 0; at < count; ++at) {
        trade<half>(pairs[at].x, pairs[at].y);
    }
    if constexpr (2 * half < width) {
        backward_inside<2 * half>(pairs, roots, degree, block, m);
    }
}

/// The last stages of a forward transform, of halves of a vector or less.
template <std::size_t count, typename M>
inline void forward_last(Word* a, const Roots& roots, std::size_t degree, std::size_t begin,
                         std::size_t end, const M& m) {
    for (std::size_t block = begin; block < end; block += count) {
        Word* start = a + 2 * width * block;
        Pair pairs[count];
        for (std::size_t at = 0; at < count; ++at) {
            pairs[at].x = load_lazy(start + 2 * width * at);
            pairs[at].y = load_lazy(start + 2 * width * at + width);
            forward_butterfly(pairs[at].x, pairs[at].y,
                              same(roots, degree / (2 * width) + block + at), m);
        }
        forward_inside<width / 2>(pairs, roots, degree, block, m);
        for (std::size_t at = 0; at < count; ++at) {
            interleave(pairs[at].x, pairs[at].y);
            store(start + 2 * width * at, reduced(pairs[at].x, m));
            store(start + 2 * width * at + width, reduced(pairs[at].y, m));
        }
    }
}

/// The first stages of a backward transform, of halves of a vector or less.
template <std::size_t count, typename M>
inline void backward_first(Word* a, const Word* in, const Roots& roots, std::size_t degree,
                           std::size_t begin, std::size_t end, const M& m) {
    for (std::size_t block = begin; block < end; block += count) {
        const std::size_t start = 2 * width * block;
        Pair pairs[count];
        for (std::size_t at = 0; at < count; ++at) {
            pairs[at].x = load(in + start + 2 * width * at);
            pairs[at].y = load(in + start + 2 * width * at + width);
            deal(pairs[at].x, pairs[at].y);
        }
        backward_inside<1>(pairs, roots, degree, block, m);
        for (std::size_t at = 0; at < count; ++at) {
            backward_butterfly(pairs[at].x, pairs[at].y,
                               same(roots, degree / (2 * width) + block + at), m);
            store_lazy(a + start + 2 * width * at, after_pass(pairs[at].x, width, m));
            store_lazy(a + start + 2 * width * at + width, pairs[at].y);
        }
    }
}

/// Two stages at once, of blocks of 2 and then of 4 halves.
template <typename M>
inline void backward_two(Word* a, const Roots& roots, std::size_t degree, std::size_t half,
                         std::size_t begin, std::size_t end, const M& m) {
    const std::size_t blocks = degree / (4 * half);
    for (std::size_t block = begin; block < end; ++block) {
        const Root last = same(roots, blocks + block);
        const Root left = same(roots, 2 * (blocks + block));
        const Root right = same(roots, 2 * (blocks + block) + 1);
        Word* start = a + 4 * block * half;
        for (std::size_t at = 0; at < half; at += width) {
            Word* place = start + at;
            Vector x0 = load_lazy(place);
            Vector x1 = load_lazy(place + half);
            Vector x2 = load_lazy(place + 2 * half);
            Vector x3 = load_lazy(place + 3 * half);
            backward_butterfly(x0, x1, left, m);
            backward_butterfly(x2, x3, right, m);
            backward_butterfly(x0, x2, last, m);
            backward_butterfly(x1, x3, last, m);
            store_lazy(place, after_pass(x0, half, m));
            store_lazy(place + half, after_pass(x1, half, m));
            store_lazy(place + 2 * half, x2);
            store_lazy(place + 3 * half, x3);
        }
    }
}

template <typename M>
void forward_modulo(Word* a, const NttTable& table, int log_degree, const M& m) {
    const Roots& roots = table.forward;
    const std::size_t degree = std::size_t{1} << log_degree;
    std::size_t blocks = 1;
    std::size_t half = degree / 2;
    // The first pass is of one stage where pairs of stages are left then.
    std::size_t paired = 0;
    for (std::size_t size = half; size > width; size /= 2) {
        ++paired;
    }
    if (paired % 2 != 0) {
        forward_one(a, roots, half, m);
        blocks = 2;
        half /= 2;
    } else {
        forward_two<Form::residues>(a, roots, blocks, half, 0, blocks, m);
        blocks = 4;
        half /= 4;
    }
    for (; 2 * half > near; blocks *= 4, half /= 4) {
        forward_two<Form::lazy>(a, roots, blocks, half, 0, blocks, m);
    }
    // All that is left, for one block after another.
    for (std::size_t part = 0; part < blocks; ++part) {
        std::size_t inner = 1;
        for (std::size_t size = half; size > width; inner *= 4, size /= 4) {
            forward_two<Form::lazy>(a, roots, blocks * inner, size, part * inner,
                                    (part + 1) * inner, m);
        }
        const auto last =
            inner < blocks_at_once ? forward_last<1, M> : forward_last<blocks_at_once, M>;
        last(a, roots, degree, part * inner, (part + 1) * inner, m);
    }
}

void forward(Word* a, const NttTable& table, int log_degree) {
    with_modulus(table.q, forward_multiple,
                 [&](const auto& m) { forward_modulo(a, table, log_degree, m); });
}

template <typename M>
void backward_modulo(Word* a, const Word* in, const NttTable& table, const M& m) {
    const Roots& roots = table.backward;
    const std::size_t degree = std::size_t{1} << table.log_degree;
    std::size_t half = 2 * width;  // of the next stage
    const std::size_t part = std::min(near, degree / 4);
    // What lies near, for one part after another.
    for (std::size_t start = 0; start < degree; start += part) {
        const std::size_t first = start / (2 * width);
        const std::size_t end = (start + part) / (2 * width);
        const auto begin =
            end - first < blocks_at_once ? backward_first<1, M> : backward_first<blocks_at_once, M>;
        begin(a, in, roots, degree, first, end, m);
        for (half = 2 * width; 4 * half <= part; half *= 4) {
            backward_two(a, roots, degree, half, start / (4 * half), (start + part) / (4 * half),
                         m);
        }
    }
    for (; 4 * half < degree; half *= 4) {  // the last pair scales
        backward_two(a, roots, degree, half, 0, degree / (4 * half), m);
    }
    const Root scale = all(table.scale);
    const Root scaled = all(table.last);
    const auto finish = [&](Vector& top, Vector& bottom) {
        const Vector sum = top + bottom;
        const Vector difference = lazy_difference(top, bottom, m);
        top = times(sum, scale, m);
        bottom = times(difference, scaled, m);
    };
    if (4 * half == degree) {
        const Root left = same(roots, 2);
        const Root right = same(roots, 3);
        for (std::size_t at = 0; at < half; at += width) {
            Word* place = a + at;
            Vector x0 = load_lazy(place);
            Vector x1 = load_lazy(place + half);
            Vector x2 = load_lazy(place + 2 * half);
            Vector x3 = load_lazy(place + 3 * half);
            backward_butterfly(x0, x1, left, m);
            backward_butterfly(x2, x3, right, m);
            finish(x0, x2);
            finish(x1, x3);
            store(place, x0);
            store(place + half, x1);
            store(place + 2 * half, x2);
            store(place + 3 * half, x3);
        }
    } else {
        for (std::size_t at = 0; at < half; at += width) {
            Vector top = load_lazy(a + at);
            Vector bottom = load_lazy(a + at + half);
            finish(top, bottom);
            store(a + at, top);
            store(a + at + half, bottom);
        }
    }
}

void backward(Word* a, const Word* in, const NttTable& table) {
    with_modulus(table.q, backward_multiple,
                 [&](const auto& m) { backward_modulo(a, in, table, m); });
}

}  // namespace
