#include "ckks/ring/ring.hpp"

#include <algorithm>

#include "ckks/ring/transform_check.hpp"

namespace atlasc::ckks {

Ring::Ring(Memory& memory, Chain chain)
    : memory_(memory),
      chain_(std::move(chain)),
      host_primes_(chain_.q),
      most_limbs_(size_q()),
      size_p_(chain_.special.size()) {
    while ((std::size_t{1} << log_degree_) < degree()) {
        ++log_degree_;
    }
    host_primes_.insert(host_primes_.end(), chain_.special.begin(), chain_.special.end());
    primes_ = std::make_shared<const Array<Prime>>(uploaded(memory_, host_primes_));
    transforms_ = std::make_shared<const Transforms>(memory_, log_degree_, host_primes_, size_p());
    make_constants();
    if (chain_.is_part()) {
        return;
    }
    check_transforms(*this, host_primes_);
    for (std::size_t limbs = 1; limbs <= chain_.digits[1]; ++limbs) {
        const std::size_t special = special_for(chain_, limbs);
        const bool is_last = limbs == chain_.digits[1] || special_for(chain_, limbs + 1) > special;
        if (is_last && special < size_p()) {
            narrower_.push_back(std::shared_ptr<const Ring>(new Ring(*this, limbs, special)));
        }
    }
}

Ring::Ring(const Ring& whole, int level) : Ring(whole.memory_, landed(whole.chain_, level)) {
    narrower_ = whole.narrower_;
}

Ring::Ring(const Ring& whole, std::size_t limbs, std::size_t special)
    : memory_(whole.memory_),
      chain_(whole.chain_),
      log_degree_(whole.log_degree_),
      host_primes_(whole.host_primes_),
      most_limbs_(limbs),
      size_p_(special),
      primes_(whole.primes_),
      transforms_(whole.transforms_) {
    make_constants();
}

Ring::~Ring() = default;

const Ring& Ring::switching(std::size_t limbs) const {
    const bool are_first = !chain_.is_part() || limbs <= chain_.gap.limb;
    for (const auto& ring : narrower_) {
        if (are_first && limbs <= ring->most_limbs_) {
            return *ring;
        }
    }
    return *this;
}

void Ring::forward(Word* limb, std::size_t count, std::size_t first) const {
    Limbs limbs{count, first};
    limbs.add(limb, limb);
    transforms_->forward(limbs);
}

void Ring::backward(Word* out, const Word* in, std::size_t count, std::size_t first) const {
    Limbs limbs{count, first};
    limbs.add(out, in);
    transforms_->backward(limbs);
}

void Ring::make_constants() {
    const std::size_t all = size_qp();
    const auto end_of_levels =
        std::upper_bound(chain_.limbs.begin(), chain_.limbs.end(), most_limbs_);
    const int levels = static_cast<int>(end_of_levels - chain_.limbs.begin());
    const std::size_t divisors = 2 * static_cast<std::size_t>(levels);
    std::vector<Word> blocks((most_limbs_ + divisors) * block_words(), 0);
    std::vector<Prime> own_primes((most_limbs_ + divisors) * most_in_block);
    const auto product = [](const std::vector<Prime>& factors, const Prime& q) {
        Word result = 1;
        for (const Prime& factor : factors) {
            result = multiply(result, reduce(factor.value, q), q);
        }
        return result;
    };
    const auto special = chain_.special.begin() + static_cast<std::ptrdiff_t>(size_p_);
    const std::vector<Prime> none;
    const std::vector<Prime> rest(special, chain_.special.end());
    // Of a multiple of the primes that are left out; the residue is one too.
    const auto fill = [&](std::size_t number, const std::vector<Prime>& own,
                          const std::vector<Prime>& left_out) {
        Word* words = &blocks[number * block_words()];
        Word* hats = words + most_in_block;
        std::copy(own.begin(), own.end(), &own_primes[number * most_in_block]);
        for (std::size_t s = 0; s < own.size(); ++s) {
            std::vector<Prime> others = own;
            others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
            others.insert(others.end(), left_out.begin(), left_out.end());
            words[s] = inverse(product(others, own[s]), own[s]);
            for (std::size_t at = 0; at < all; ++at) {
                hats[s * all + at] = product(others, host_primes_[at]);
            }
        }
        for (std::size_t at = 0; at < all; ++at) {
            const Prime& q = host_primes_[at];
            const Word block = multiply(product(own, q), product(left_out, q), q);
            hats[most_in_block * all + at] = negate(block, q);
        }
    };
    const auto from = [&](std::size_t first, std::size_t end) {
        const auto start = host_primes_.begin();
        return std::vector<Prime>(start + static_cast<std::ptrdiff_t>(first),
                                  start + static_cast<std::ptrdiff_t>(end));
    };
    for (std::size_t digit = 0; digit + 1 < chain_.digits.size(); ++digit) {
        const std::size_t first = chain_.digits[digit];
        const std::size_t most = std::min(chain_.digits[digit + 1], most_limbs_);
        for (std::size_t end = first + 1; end <= most; ++end) {
            fill(end - 1, from(first, end), rest);
        }
    }
    std::vector<Word> digit_numbers(size_q(), 0);
    for (std::size_t digit = 0; digit + 1 < chain_.digits.size(); ++digit) {
        std::fill(&digit_numbers[chain_.digits[digit]], &digit_numbers[0] + chain_.digits[digit + 1],
                  digit);
    }
    digit_numbers_ = uploaded(memory_, digit_numbers);
    std::vector<Word> digit_inverses(most_limbs_ * size_q(), 0);
    for (std::size_t limbs = 1; limbs <= most_limbs_; ++limbs) {
        for (std::size_t digit = 0; digit < digits(limbs); ++digit) {
            const std::size_t first = chain_.digits[digit];
            const std::size_t end = std::min(chain_.digits[digit + 1], limbs);
            std::copy_n(&blocks[(end - 1) * block_words()], end - first,
                        &digit_inverses[(limbs - 1) * size_q() + first]);
        }
    }
    std::vector<Word> inverses(divisors * size_q(), 0);
    for (int level = 0; level < levels; ++level) {
        const std::size_t below = level == 0 ? 0 : chain_.limbs_at(level - 1);
        for (const bool by_p : {false, true}) {
            std::vector<Prime> own =
                level == 0 ? std::vector<Prime>() : from(below, chain_.limbs_at(level));
            const std::vector<Prime>& left_out = by_p ? rest : none;
            if (by_p) {
                own.insert(own.end(), chain_.special.begin(), special);
            }
            const std::size_t number = divisor_number(level, by_p);
            fill(number, own, left_out);
            own.insert(own.end(), left_out.begin(), left_out.end());
            for (std::size_t at = 0; at < (level == 0 ? size_q() : below); ++at) {
                const Prime& q = host_primes_[at];
                inverses[(number - most_limbs_) * size_q() + at] = inverse(product(own, q), q);
            }
        }
    }
    blocks_ = uploaded(memory_, blocks);
    if (begins_conversions()) {
        make_balanced(blocks, own_primes);
    }
    own_primes_ = uploaded(memory_, own_primes);
    std::vector<double> shares;
    for (const Prime& q : own_primes) {
        shares.push_back(1.0 / static_cast<double>(std::max(q.value, Word{1})));  // or unused
    }
    shares_ = uploaded(memory_, shares);
    inverses_ = uploaded(memory_, inverses);
    digit_inverses_ = uploaded(memory_, digit_inverses);
    for (const Prime& q : chain_.q) {
        special_product_.push_back(product(chain_.special, q));
    }
    special_products_ = uploaded(memory_, special_product_);
    const Prime& q0 = chain_.q[0];
    inverse_of_first_special_ = uploaded(
        memory_, std::vector<Word>{inverse(reduce(chain_.special[0].value, q0), q0)});
}

void Ring::make_balanced(const std::vector<Word>& blocks, const std::vector<Prime>& own_primes) {
    constexpr std::size_t rows = BlockConstants::rows;
    std::vector<double> balanced(own_primes.size() / most_in_block * size_qp() * rows);
    for (std::size_t at = 0; at < balanced.size(); ++at) {
        const std::size_t prime = at / rows % size_qp();
        const Word* hats = &blocks[at / rows / size_qp() * block_words()] + most_in_block;
        const Word factor = hats[at % rows * size_qp() + prime];
        const Word q = host_primes_[prime].value;
        balanced[at] = factor > q / 2 ? -static_cast<double>(q - factor)
                                      : static_cast<double>(factor);
    }
    balanced_ = uploaded(memory_, balanced);
    for (std::size_t at = 0; at < own_primes.size(); at += most_in_block) {
        const auto own = own_primes.begin() + static_cast<std::ptrdiff_t>(at);
        const bool few = own[BlockConstants::most_balanced].value == 0;
        has_balanced_.push_back(few && std::all_of(own, own + most_in_block, [](const Prime& q) {
            return q.value >> BlockConstants::most_balanced_bits == 0;
        }));
    }
}

BlockConstants Ring::block(std::size_t number, std::size_t first, std::size_t size) const {
    const Word* words = blocks_.get() + number * block_words();
    const Word* hats = words + most_in_block;
    const bool balanced = number < has_balanced_.size() && has_balanced_[number];
    return {words, hats, hats + most_in_block * size_qp(),
            own_primes_.get() + number * most_in_block, shares_.get() + number * most_in_block,
            balanced ? balanced_.get() + number * BlockConstants::rows * size_qp() : nullptr,
            first, size};
}

BlockConstants Ring::digit(std::size_t number, std::size_t limbs) const {
    const std::size_t first = chain_.digits[number];
    const std::size_t end = std::min(chain_.digits[number + 1], limbs);
    return block(end - 1, first, end - first);
}

std::size_t Ring::divisor_number(int level, bool special) const {
    return most_limbs_ + 2 * static_cast<std::size_t>(level) + (special ? 1 : 0);
}

Divisor Ring::divisor(int level, bool special) const {
    const std::size_t number = divisor_number(level, special);
    const std::size_t below = level == 0 ? 0 : chain_.limbs_at(level - 1);
    const std::size_t primes = level == 0 ? 0 : chain_.limbs_at(level) - below;
    const std::size_t specials = special ? size_p() : 0;
    return {block(number, below, primes + specials),
            inverses_.get() + (number - most_limbs_) * size_q(), primes, specials};
}

}  // namespace atlasc::ckks
