//! SHA-256, for the tests alone: Flink's answers have it, and nothing else here needs it.

const PRIMES: [u32; 64] = [
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109,
    113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239,
    241, 251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311,
];

/// The first 32 bits of the fraction of a root: the largest number whose power is not above the prime.
fn root(prime: u32, power: u32) -> u32 {
    let (mut low, mut high) = (0_u64, 20 << 32);
    while high - low > 1 {
        let middle = (low + high) / 2;
        // At most 37 + 2 * 36 bits.
        let value = u128::from(middle).pow(power);
        if value <= u128::from(prime) << (32 * power) { low = middle } else { high = middle }
    }
    u32::try_from(low & 0xFFFF_FFFF).unwrap()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((bytes.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend((8 * bytes.len() as u64).to_be_bytes());
    let round: Vec<u32> = PRIMES.iter().map(|prime| root(*prime, 3)).collect();
    let mut state: [u32; 8] = std::array::from_fn(|i| root(PRIMES[i], 2));
    for block in padded.chunks(64) {
        let mut words: Vec<u32> = block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let a = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let b = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            words.push(words[i - 16].wrapping_add(a).wrapping_add(words[i - 7]).wrapping_add(b));
        }
        let mut next = state;
        for i in 0..64 {
            let [a, b, c, d, e, f, g, h] = next;
            let one = (e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25)).wrapping_add(e & f ^ !e & g);
            let one = one.wrapping_add(h).wrapping_add(round[i]).wrapping_add(words[i]);
            let two = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let two = two.wrapping_add(a & b ^ a & c ^ b & c);
            next = [one.wrapping_add(two), a, b, c, d.wrapping_add(one), e, f, g];
        }
        state = std::array::from_fn(|i| state[i].wrapping_add(next[i]));
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn it_is_sha_256() {
    assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(hex(two_blocks.as_bytes()), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
