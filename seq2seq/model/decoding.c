/* A Transformer's decoder for search on the CPU in float32: one call per step. native.py lays out the weights.

   A step computes the same as Transformer.decode (transformer.py) for one position of every row. Row r continues one hypothesis
   of sentence[r]; past[r] lists the slots that hold the keys and values of the row's target tokens, the new slot last.
   Matrices are stored row by row; d is the model's width, and c = d / heads is the number of channels of a head. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, VECTORS = 4 };
#elif defined(__AVX__)
enum { LANES = 8, VECTORS = 2 };
#else
enum { LANES = 4, VECTORS = 4 };
#endif
enum { BLOCK = LANES * VECTORS, MOST_ROWS = 6 }; /* the sums of this many rows fit into the registers */
enum { RELU, SWIGLU, SWISH, GELU };

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

typedef struct { /* x Wᵀ + b; W in blocks of BLOCK outputs, (blocks, in, BLOCK); both padded with zeros */
    const float *weight, *bias;
    int64_t in, out;
} Map;

typedef struct {
    const float *weight, *bias; /* null weight: no normalisation; null bias: RMSNorm */
    float eps;
} Norm;

typedef struct {
    Norm norms[3];
    Map queries_keys_values, own_out, cross_queries, cross_out, up, down;
} Layer;

typedef struct {
    int64_t layers, heads, width, is_pre_norm, activation;
    float scale;
    const float *embedding; /* (vocabulary, d) */
    const Layer *layer;
    Norm norm;
    Map output;
} Decoder;

typedef struct {
    int64_t rows, used, capacity, steps, sources;
    const int64_t *last, *sentence, *past; /* (rows), (rows), (rows, steps); past ends with the new slots, from `used` on */
    const int64_t *lengths;                /* lengths of the sources, (sentences) */
    const float *position, *rotation;      /* added to embeddings, (d); cosines and sines, (2, c); or null */
    float *slots;                          /* (layers, 2, capacity, d) */
    const float *const *memory;            /* each layer's keys and values, (layers × 2) of (sentences, sources, d) */
    float *logits;                         /* (rows, vocabulary) */
} Step;

int64_t block_size(void) { return BLOCK; }

/* e^x in a form that compilers vectorise: 2^n times a polynomial in x - n ln 2. ln 2 is subtracted in two parts, in this
   order, which flags such as -fassociative-math would undo. The relative error is about 1e-7 from -87 to 88; beyond an
   end of this range, the result is the value at this end. NaN gives NaN. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float sum = 1.9841270e-4f;
    sum = sum * rest + 1.3888889e-3f;
    sum = sum * rest + 8.3333333e-3f;
    sum = sum * rest + 4.1666667e-2f;
    sum = sum * rest + 1.6666667e-1f;
    sum = sum * rest + 0.5f;
    sum = sum * rest * rest + rest + 1.0f;
    const uint32_t exponent = n > -127.0f ? (uint32_t)((int32_t)n + 127) : 0; /* 0: n is NaN */
    union { uint32_t bits; float value; } power = {exponent << 23};
    return sum * power.value;
}

/* Replaces the numbers x by e^(x - most), and returns their sum. */
float exponentials(float *x, int64_t count, float most) {
    float lanes[BLOCK] = {0}, total = 0;
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int64_t lane = 0; lane < BLOCK; lane++) lanes[lane] += x[i + lane] = exponential(x[i + lane] - most);
    for (; i < count; i++) total += x[i] = exponential(x[i] - most);
    for (int64_t lane = 0; lane < BLOCK; lane++) total += lanes[lane];
    return total;
}

static inline float sum_of_products(const float *x, const float *y, int64_t count) {
    Vector sums = {0};
    float total = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) sums += *(const Vector *)(x + i) * *(const Vector *)(y + i);
    for (; i < count; i++) total += x[i] * y[i];
    for (int lane = 0; lane < LANES; lane++) total += sums[lane];
    return total;
}

/* Computes one block of outputs of a few rows; the compiler knows the number of rows. */
static inline __attribute__((always_inline)) void block_of_rows(
    const int rows, const float *x, int64_t in, const float *weight, const float *bias, float *y, int64_t out, int64_t valid) {
    Vector sums[MOST_ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = *(const Vector *)(bias + v * LANES);
    for (int64_t i = 0; i < in; i++, weight += BLOCK)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) sums[r][v] += x[r * in + i] * *(const Vector *)(weight + v * LANES);
    for (int r = 0; r < rows; r++) memcpy(y + r * out, sums[r], valid * sizeof(float));
}

static void product(const Map *map, int64_t rows, const float *x, float *y) {
    const int64_t parts = (rows + MOST_ROWS - 1) / MOST_ROWS, in = map->in, out = map->out;
    for (int64_t o = 0; o < out; o += BLOCK) {
        const float *weight = map->weight + o * in, *bias = map->bias + o;
        const int64_t valid = out - o < BLOCK ? out - o : BLOCK;
        for (int64_t part = 0; part < parts; part++) {
            const int64_t first = part * rows / parts, count = (part + 1) * rows / parts - first;
            const float *from = x + first * in;
            float *to = y + first * out + o;
            switch (count) {
                case 1: block_of_rows(1, from, in, weight, bias, to, out, valid); break;
                case 2: block_of_rows(2, from, in, weight, bias, to, out, valid); break;
                case 3: block_of_rows(3, from, in, weight, bias, to, out, valid); break;
                case 4: block_of_rows(4, from, in, weight, bias, to, out, valid); break;
                case 5: block_of_rows(5, from, in, weight, bias, to, out, valid); break;
                case 6: block_of_rows(6, from, in, weight, bias, to, out, valid); break;
            }
        }
    }
}

static void normalise(const Norm *norm, int64_t rows, int64_t width, const float *x, float *y) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        if (!norm->weight) {
            memmove(y, x, width * sizeof(float));
            continue;
        }
        float mean = 0;
        if (norm->bias) {
            Vector sums = {0};
            int64_t i = 0;
            for (; i + LANES <= width; i += LANES) sums += *(const Vector *)(x + i);
            for (; i < width; i++) mean += x[i];
            for (int lane = 0; lane < LANES; lane++) mean += sums[lane];
            mean /= width;
        }
        for (int64_t i = 0; i < width; i++) y[i] = x[i] - mean;
        const float scale = 1 / sqrtf(sum_of_products(y, y, width) / width + norm->eps);
        for (int64_t i = 0; i < width; i++) y[i] = y[i] * scale * norm->weight[i] + (norm->bias ? norm->bias[i] : 0);
    }
}

/* Attends with one head of one query to the `count` slots in `which`; if `which` is null, to the first `count`. */
static void attend(const float *query, const float *keys, const float *values, const int64_t *which, int64_t count,
                   int64_t width, int64_t channels, float *weights, float *context) {
    const float scale = 1 / sqrtf(channels);
    float most = -INFINITY;
    for (int64_t z = 0; z < count; z++) {
        weights[z] = sum_of_products(query, keys + (which ? which[z] : z) * width, channels) * scale;
        most = weights[z] > most ? weights[z] : most;
    }
    const float total = exponentials(weights, count, most);
    memset(context, 0, channels * sizeof(float));
    for (int64_t z = 0; z < count; z++) {
        const float *value = values + (which ? which[z] : z) * width;
        weights[z] /= total;
        for (int64_t i = 0; i < channels; i++) context[i] += weights[z] * value[i];
    }
}

/* Rotates the pairs of channels (i, i + c/2) of each head by the angles of the position (RoFormer, eq. 34). */
static void rotate(float *x, int64_t heads, int64_t channels, const float *rotation) {
    const int64_t half = channels / 2;
    const float *cosine = rotation, *sine = rotation + channels;
    for (int64_t h = 0; h < heads; h++, x += channels)
        for (int64_t i = 0; i < half; i++) {
            const float left = x[i], right = x[i + half];
            x[i] = left * cosine[i] - right * sine[i];
            x[i + half] = right * cosine[i + half] + left * sine[i + half];
        }
}

static void activate(int64_t rows, int64_t hidden, int64_t activation, float *x, float *y) {
    for (int64_t r = 0; r < rows; r++, x += hidden * (activation == SWIGLU ? 2 : 1), y += hidden)
        switch (activation) {
            case SWIGLU: /* the gate comes before the values */
                for (int64_t i = 0; i < hidden; i++) y[i] = x[i] / (1 + exponential(-x[i])) * x[hidden + i];
                break;
            case SWISH:
                for (int64_t i = 0; i < hidden; i++) y[i] = x[i] / (1 + exponential(-x[i]));
                break;
            case GELU:
                for (int64_t i = 0; i < hidden; i++) y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
                break;
            default:
                for (int64_t i = 0; i < hidden; i++) y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays NaN, so that it is noticed */
        }
}

/* Residual connections: pre-norm normalises what a sublayer reads, post-norm the sum of its input and its output. */
static const float *enter(const Decoder *decoder, const Norm *norm, int64_t rows, const float *x, float *y) {
    if (!decoder->is_pre_norm) return x;
    normalise(norm, rows, decoder->width, x, y);
    return y;
}

static void leave(const Decoder *decoder, const Norm *norm, int64_t rows, float *x, const float *output) {
    for (int64_t i = 0; i < rows * decoder->width; i++) x[i] += output[i];
    if (!decoder->is_pre_norm) normalise(norm, rows, decoder->width, x, x);
}

/* Continues every row by its last token; returns 0, or 1 if memory cannot be allocated. */
int step(const Decoder *decoder, const Step *step) {
    const int64_t n = step->rows, d = decoder->width, heads = decoder->heads, c = d / heads;
    const int64_t hidden = decoder->layers ? decoder->layer->down.in : 0, wide = hidden * (decoder->activation == SWIGLU ? 2 : 1);
    const int64_t most = step->steps > step->sources ? step->steps : step->sources;
    float *room = malloc((n * (7 * d + wide + hidden) + most) * sizeof(float));
    if (!room) return 1;
    float *x = room, *y = x + n * d, *projected = y + n * d, *context = projected + 3 * n * d, *output = context + n * d;
    float *up = output + n * d, *active = up + n * wide, *weights = active + n * hidden;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i++)
            x[r * d + i] = decoder->embedding[step->last[r] * d + i] * decoder->scale + (step->position ? step->position[i] : 0);

    for (int64_t l = 0; l < decoder->layers; l++) {
        const Layer *layer = decoder->layer + l;
        float *keys = step->slots + 2 * l * step->capacity * d, *values = keys + step->capacity * d;

        product(&layer->queries_keys_values, n, enter(decoder, &layer->norms[0], n, x, y), projected);
        for (int64_t r = 0; r < n; r++) {
            float *row = projected + 3 * r * d;
            if (step->rotation) rotate(row, 2 * heads, c, step->rotation);
            memcpy(keys + (step->used + r) * d, row + d, d * sizeof(float));
            memcpy(values + (step->used + r) * d, row + 2 * d, d * sizeof(float));
        }
        for (int64_t r = 0; r < n; r++)
            for (int64_t h = 0; h < heads; h++)
                attend(projected + 3 * r * d + h * c, keys + h * c, values + h * c, step->past + r * step->steps, step->steps,
                       d, c, weights, context + r * d + h * c);
        product(&layer->own_out, n, context, output);
        leave(decoder, &layer->norms[0], n, x, output);

        product(&layer->cross_queries, n, enter(decoder, &layer->norms[1], n, x, y), projected);
        for (int64_t r = 0; r < n; r++) {
            const int64_t sentence = step->sentence[r], offset = sentence * step->sources * d;
            for (int64_t h = 0; h < heads; h++)
                attend(projected + r * d + h * c, step->memory[2 * l] + offset + h * c, step->memory[2 * l + 1] + offset + h * c,
                       NULL, step->lengths[sentence], d, c, weights, context + r * d + h * c);
        }
        product(&layer->cross_out, n, context, output);
        leave(decoder, &layer->norms[1], n, x, output);

        product(&layer->up, n, enter(decoder, &layer->norms[2], n, x, y), up);
        activate(n, hidden, decoder->activation, up, active);
        product(&layer->down, n, active, output);
        leave(decoder, &layer->norms[2], n, x, output);
    }
    normalise(&decoder->norm, n, d, x, y);
    product(&decoder->output, n, y, step->logits);
    free(room);
    return 0;
}

static float greatest(const float *x, int64_t count) {
    float lanes[BLOCK], most = -INFINITY;
    int64_t i = 0;
    for (int64_t lane = 0; lane < BLOCK; lane++) lanes[lane] = -INFINITY;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int64_t lane = 0; lane < BLOCK; lane++) lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    for (int64_t lane = 0; lane < BLOCK; lane++) most = lanes[lane] > most ? lanes[lane] : most;
    for (; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float sum_of_exponentials(const float *x, int64_t count, float most) {
    float lanes[BLOCK] = {0}, total = 0;
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int64_t lane = 0; lane < BLOCK; lane++) lanes[lane] += exponential(x[i + lane] - most);
    for (; i < count; i++) total += exponential(x[i] - most);
    for (int64_t lane = 0; lane < BLOCK; lane++) total += lanes[lane];
    return total;
}

/* Writes each row's best tokens that are not forbidden, best first: log-probabilities (nats) and ids; -inf if there are
   fewer than `count`. */
void best_next(int64_t rows, int64_t vocabulary, int64_t count, const float *logits, const char *forbidden, float *values,
               int64_t *tokens) {
    for (int64_t r = 0; r < rows; r++, logits += vocabulary, forbidden += vocabulary, values += count, tokens += count) {
        const float most = greatest(logits, vocabulary);
        const float log_total = most + logf(sum_of_exponentials(logits, vocabulary, most));
        for (int64_t i = 0; i < count; i++) values[i] = -INFINITY, tokens[i] = 0;
        if (log_total != log_total) { /* NaN, so that it is noticed */
            values[0] = NAN;
            continue;
        }
        for (int64_t start = 0; start < vocabulary; start += BLOCK) {
            const int64_t end = start + BLOCK < vocabulary ? start + BLOCK : vocabulary;
            const float least = values[count - 1];
            int has_better = 0;
            for (int64_t i = start; i < end; i++) has_better |= logits[i] > least;
            for (int64_t i = start; has_better && i < end; i++) {
                int64_t place = count;
                while (place > 0 && logits[i] > values[place - 1]) place--;
                if (place == count || forbidden[i]) continue;
                memmove(values + place + 1, values + place, (count - 1 - place) * sizeof(float));
                memmove(tokens + place + 1, tokens + place, (count - 1 - place) * sizeof(int64_t));
                values[place] = logits[i], tokens[place] = i;
            }
        }
        for (int64_t i = 0; i < count && values[i] > -INFINITY; i++) values[i] -= log_total;
    }
}
