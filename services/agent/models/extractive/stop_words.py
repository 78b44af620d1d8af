"""The words of each language that carry no content."""

# Words of grammar and of asking. What is left of a question without them is what it is about.
ENGLISH_STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can cannot could did do does doing done down during each either else ever few for from further had has have having
    he her here hers him his how i if in into is isn't it its itself just let me might more most much must my no nor
    not now of off on once one only or other our ours out over own per please same shall she should so some such tell
    than that the their theirs them then there these they this those through to too under until up upon us use used
    using very was we were what what's when where which while who whom whose why will with within without would yes yet
    you your yours don't doesn't can't won't i'm it's there's many often long far
    give show explain describe know known want ever need find get got make made happen happens mean means work works
    """.split()
)

CHINESE_STOP_WORDS = frozenset(
    """
    的 了 和 与 及 或 在 是 为 有 没有 我 你 您 他 她 它 我们 你们 他们 这 那 这个 那个 这些 那些 哪 哪个 哪些
    哪里 哪儿 谁 什么 怎么 怎样 如何 为什么 为何 多少 几 几个 几天 多久 多长 多长时间 多大 多少钱 什么样 何时
    什么时候 时候 吗 呢 吧 啊 请 请问 可以 能 能够 能不能 可不可以 是否 是不是 有没有 要 需要 想 想要 会 应 应该
    应当 最 最多 最少 至少 就 都 也 还 又 再 很 更 才 只 把 被 让 给 对 从 到 由 向 用 使用 之 之后 之前 以及
    以上 以下 其 一个 一下 个 种 次 告诉 知道 介绍 说明 目前 现在 不同 区别 差别 差异 比较 分别 关于 里 里面 中
    上 下 内 时 等 做 来 去 看 说 连续 意思 含义
    """.split()
)

# What rjieba calls words of grammar: auxiliaries, prepositions, conjunctions, pronouns, adverbs, particles,
# measure words, punctuation.
CHINESE_FUNCTION_TAGS = frozenset("u uj ul ud uv uz ug p c r rr rz rg d df dg y e o x w q f k h zg z m mq".split())

# Nouns and verbs that say what kind of answer is wanted ("battery life" as "how long"), by their stems: where a
# sentence has one, it counts a little; where none has, the sentence may put it in another way.
ENGLISH_LIGHT_WORDS = frozenset(
    """
    life lifetime lifespan period duration time hour length take last cost price pric fee amount number quantity
    kind type sort way thing possibl allow exactli currentli usualli normalli live look say tell
    """.split()
)
CHINESE_LIGHT_WORDS = frozenset("寿命 期限 时长 时间 价格 价钱 费用 数量 种类 类型 方式 方法 情况 需求 要求".split())
