// What lanes.hpp declares, and the table of all vector kernels. Included once for each arithmetic,
// inside its namespace: ifma.cpp, avx2.cpp.
namespace {

/// Runs have eight values or more, or one.
inline Vector plain_at(const PlainValues& values, std::size_t at) {
    return values.log_run == 0 ? load(values.words + at) : all(values[at]);
}

/// Numbers of a line of the cache. Rows that are added up lie powers of two apart, and push each
/// other out of the nearest cache: a line is used up at once.
constexpr std::size_t line = 8;

struct Sums {
    Sum of[line / width];

    Sums() {}  // GCC compiles a constructor of its own without the instructions of this file

    /// Products with one factor.
    void add(const Word* x, Vector factor, const Reduction& m) {
        for (std::size_t part = 0; part < line / width; ++part) {
            of[part].add(load(x + part * width), factor, m);
        }
    }

    void settle(const Reduction& m) {
        for (Sum& one : of) {
            one.settle(m);
        }
    }

    void store_to(Word* out, const Reduction& m) const {
        for (std::size_t part = 0; part < line / width; ++part) {
            store(out + part * width, of[part].reduced(m));
        }
    }
};

/// Calls add(0), ..., add(count - 1), which add products to sums, and settle() in time.
template <typename Kind = Sum, typename Add, typename Settle>
inline void add_up(std::size_t count, const Add& add, const Settle& settle) {
    for (std::size_t at = 0; at < std::min(count, Kind::most); ++at) {
        add(at);
    }
    for (std::size_t first = Kind::most; first < count; first += Kind::most) {
        settle();
        for (std::size_t at = first; at < std::min(count, first + Kind::most); ++at) {
            add(at);
        }
    }
}

void add(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        store(out + at, sum_of(load(a + at), load(b + at), m));
    }
}

void subtract(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        store(out + at, difference_of(load(a + at), load(b + at), m));
    }
}

void multiply(Word* out, const Word* a, const PlainValues& b, std::size_t length, const Prime& q) {
    const Reduction m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        Sum total;
        total.add(load(a + at), plain_at(b, at), m);
        store(out + at, total.reduced(m));
    }
}

void plus_number(Word* out, const Word* a, Word number, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    const Vector added = all(number);
    for (std::size_t at = 0; at < length; at += width) {
        store(out + at, sum_of(load(a + at), added, m));
    }
}

void add_product(Word* const (&d)[3], const Word* const (&a)[2], const Word* const (&b)[2],
                 std::size_t length, bool first, const Prime& q) {
    const Reduction m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        Sum sums[3];
        for (int part = 0; !first && part < 3; ++part) {
            sums[part].start(load(d[part] + at));
        }
        const Vector a0 = load(a[0] + at);
        const Vector a1 = load(a[1] + at);
        const Vector b0 = load(b[0] + at);
        const Vector b1 = load(b[1] + at);
        sums[0].add(a0, b0, m);
        sums[1].add(a0, b1, m);
        sums[1].add(a1, b0, m);
        sums[2].add(a1, b1, m);
        for (int part = 0; part < 3; ++part) {
            store(d[part] + at, sums[part].reduced(m));
        }
    }
}

void divide(Word* out, const Word* values, const Word* minuend, Word factor, std::size_t length,
            const Prime& q) {
    const Modulus m(q.value);
    const Root root = root_of(factor, q.value);
    for (std::size_t at = 0; at < length; at += width) {
        const Vector difference = lazy_difference(load(values + at), load(minuend + at), m);
        store(out + at, times(difference, root, m));
    }
}

void lift(Word* out, const Word* in, std::size_t length, const Prime& from, const Prime& to) {
    const Reduction m(to.value);
    const Vector half = all(from.value / 2);
    const Vector whole = all(from.value);
    for (std::size_t at = 0; at < length; at += width) {
        store(out + at, residue_of(centred(load(in + at), half, whole), m));
    }
}

void residues(Word* out, const double* integers, std::size_t length, const Prime& q) {
    const Reduction m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        store(out + at, residue_of(load_integers(integers + at), m));
    }
}

void inner_product(Word* b, Word* a, const Word* x, std::size_t digit_stride,
                   const lanes::Packed& key, std::size_t key_stride, std::size_t digits,
                   const lanes::Addends& addends, std::size_t length, const Prime& q) {
    const Reduction m(q.value);
    const Vector factor = all(addends.factor);
    const Unpacking unpacking(key.bits);
    for (std::size_t at = 0; at < length; at += line) {
        Sums first;
        Sums second;
        const auto add_digit = [&](std::size_t digit) {
            const std::size_t of_key = digit < key.gap ? digit : digit + key.gaps;
            const Word* parts = key.words + 2 * of_key * key_stride;
            for (std::size_t part = 0; part < line / width; ++part) {
                const std::size_t place = at + part * width;
                const Vector value = load(x + digit * digit_stride + place);
                first.of[part].add(value, unpacking(parts, key.first + place), m);
                second.of[part].add(value, unpacking(parts + key_stride, key.first + place),
                                    m);
            }
        };
        add_up(digits, add_digit, [&] {
            first.settle(m);
            second.settle(m);
        });
        if (addends.first != nullptr) {
            first.add(addends.first + at, factor, m);
        }
        if (addends.second != nullptr) {
            second.add(addends.second + at, factor, m);
        }
        first.store_to(b + at, m);
        second.store_to(a + at, m);
    }
}

void permute(Word* out, const Word* in, const std::uint32_t* from, std::size_t start,
             bool accumulate, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        const Vector x = from == nullptr ? load(in + at) : gather(in, from + at, start);
        store(out + at, accumulate ? sum_of(x, load(out + at), m) : x);
    }
}

void sum_of_products(Word* out, const lanes::Term* terms, std::size_t count, bool accumulate,
                     std::size_t length, const Prime& q) {
    const Reduction m(q.value);
    for (std::size_t at = 0; at < length; at += line) {
        Sums total;
        for (std::size_t part = 0; accumulate && part < line / width; ++part) {
            total.of[part].start(load(out + at + part * width));
        }
        const auto add_term = [&](std::size_t term) {
            for (std::size_t part = 0; part < line / width; ++part) {
                const std::size_t place = at + part * width;
                total.of[part].add(load(terms[term].x + place),
                                   plain_at(terms[term].plain, place), m);
            }
        };
        add_up(count, add_term, [&] { total.settle(m); });
        total.store_to(out + at, m);
    }
}

/// Two vectors of one row. The rows below have names of their own: the compiler keeps those in
/// registers, and an array in memory.
struct RowSums {
    LongSum left;
    LongSum right;

    RowSums() {}

    /// What products of pairs of terms have too much.
    void start(Word excess, Vector x, Vector y, const LongReduction& m) {
        left.start(difference_of(zero(), x, m) + difference_of(zero(), all(excess), m));
        right.start(difference_of(zero(), y, m) + difference_of(zero(), all(excess), m));
    }

    void settle(const LongReduction& m) {
        left.settle(m);
        right.settle(m);
    }

    void store_to(Word* out, const LongReduction& m) const {
        store(out, left.reduced(m));
        store(out + width, right.reduced(m));
    }
};

/// Winograd 1968: x1 f1 + x2 f2 = (x1 + f2)(x2 + f1) - x1 x2 - f1 f2. What is subtracted depends on the
/// place or on the row alone, so there are half as many products.
void matrix_product(Word* const* out, std::size_t first, const Word* x, std::size_t apart,
                    std::size_t count, const Word* factors, const Word* pairs, std::size_t rows,
                    std::size_t length, const Prime& q) {
    const LongReduction m(q.value);
    for (std::size_t at = 0; at < length; at += 2 * width) {
        LongSum left;
        LongSum right;
        const auto add_places = [&](std::size_t pair) {
            const Word* place = x + 2 * pair * apart + at;
            left.add(load(place), load(place + apart), m);
            right.add(load(place + width), load(place + apart + width), m);
        };
        add_up<LongSum>(count / 2, add_places, [&] {
            left.settle(m);
            right.settle(m);
        });
        const Vector of_left = left.reduced(m);
        const Vector of_right = right.reduced(m);
        for (std::size_t row = 0; row < rows; row += 4) {
            RowSums a;
            RowSums b;
            RowSums c;
            RowSums d;
            a.start(pairs[row], of_left, of_right, m);
            b.start(pairs[row + 1], of_left, of_right, m);
            c.start(pairs[row + 2], of_left, of_right, m);
            d.start(pairs[row + 3], of_left, of_right, m);
            const auto add_pair = [&](std::size_t pair) {
                const Word* place = x + 2 * pair * apart + at;
                const Vector left_one = load(place);
                const Vector right_one = load(place + width);
                const Vector left_two = load(place + apart);
                const Vector right_two = load(place + apart + width);
                const Word* one = factors + 2 * pair * rows + row;
                const Word* two = one + rows;
                const auto add_to = [&](RowSums& sums, std::size_t at) {
                    const Vector first_factor = addend(all(one[at]), m);
                    const Vector second_factor = addend(all(two[at]), m);
                    sums.left.add(left_one + second_factor, left_two + first_factor, m);
                    sums.right.add(right_one + second_factor, right_two + first_factor, m);
                };
                add_to(a, 0);
                add_to(b, 1);
                add_to(c, 2);
                add_to(d, 3);
            };
            add_up<LongSum>(count / 2, add_pair, [&] {
                a.settle(m);
                b.settle(m);
                c.settle(m);
                d.settle(m);
            });
            a.store_to(out[row] + first + at, m);
            b.store_to(out[row + 1] + first + at, m);
            c.store_to(out[row + 2] + first + at, m);
            d.store_to(out[row + 3] + first + at, m);
        }
    }
}

void scale(Word* y, double* sum, const Word* x, Word inverse, std::size_t length,
           const Prime& q) {
    const Modulus m(q.value);
    const Root root = root_of(inverse, q.value);
    const auto whole = static_cast<double>(q.value);
    for (std::size_t at = 0; at < length; at += width) {
        const Vector scaled = times(load(x + at), root, m);
        store(y + at, scaled);
        add_quotient(sum + at, scaled, whole);
    }
}

void combine(Word* out, const Word* y, std::size_t row, std::size_t size, const Word* hats,
             std::size_t stride, const Word* u, Word minus, std::size_t length, const Prime& q) {
    const Reduction m(q.value);
    const Vector negative = all(minus);
    for (std::size_t at = 0; at < length; at += line) {
        Sums total;
        total.add(u + at, negative, m);
        const auto add_term = [&](std::size_t s) {
            total.add(y + s * row + at, all(hats[s * stride]), m);
        };
        add_up(size, add_term, [&] { total.settle(m); });
        total.store_to(out + at, m);
    }
}

/// A word of many blocks.
using Blocks __attribute__((vector_size(8 * width))) = std::uint32_t;

template <int bits>
inline void turn(Blocks& x, const Blocks& by) {
    const Blocks mixed = x ^ by;
    x = (mixed << bits) | (mixed >> (32 - bits));
}

inline void quarter(Blocks& a, Blocks& b, Blocks& c, Blocks& d) {
    a += b;
    turn<16>(d, a);
    c += d;
    turn<12>(b, c);
    a += b;
    turn<8>(d, a);
    c += d;
    turn<7>(b, c);
}

void chacha20(std::uint32_t (&words)[16][16], const Seed& seed, std::uint32_t counter,
              std::uint32_t step, const std::uint32_t (&nonce)[3]) {
    constexpr std::uint32_t count = sizeof(Blocks) / sizeof(std::uint32_t);
    const Blocks zero = {};
    Blocks start[16];
    const std::uint32_t constants[4] = {0x61707865U, 0x3320646eU, 0x79622d32U, 0x6b206574U};
    for (int at = 0; at < 4; ++at) {
        start[at] = zero + constants[at];
    }
    for (int at = 0; at < 8; ++at) {
        start[4 + at] = zero + seed.words[at];
    }
    for (int at = 0; at < 3; ++at) {
        start[13 + at] = zero + nonce[at];
    }
    for (std::uint32_t first = 0; first < 16; first += count) {
        for (std::uint32_t block = 0; block < count; ++block) {
            start[12][block] = counter + (first + block) * step;
        }
        Blocks x[16];
        for (int at = 0; at < 16; ++at) {
            x[at] = start[at];
        }
        for (int round = 0; round < 10; ++round) {
            quarter(x[0], x[4], x[8], x[12]);
            quarter(x[1], x[5], x[9], x[13]);
            quarter(x[2], x[6], x[10], x[14]);
            quarter(x[3], x[7], x[11], x[15]);
            quarter(x[0], x[5], x[10], x[15]);
            quarter(x[1], x[6], x[11], x[12]);
            quarter(x[2], x[7], x[8], x[13]);
            quarter(x[3], x[4], x[9], x[14]);
        }
        for (int at = 0; at < 16; ++at) {
            x[at] += start[at];
            std::memcpy(&words[at][first], &x[at], sizeof(Blocks));
        }
    }
}

}  // namespace

#define ATLASC_KERNEL(name, of_type) name,
const VectorKernels kernels = {ATLASC_VECTOR_KERNELS(ATLASC_KERNEL)};
#undef ATLASC_KERNEL
